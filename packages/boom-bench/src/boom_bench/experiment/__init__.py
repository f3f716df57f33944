"""The pieces of the small real experiment: flights as metrics, the check against gluonts, a small Toto, the figure."""
