"""Test support for methods that use this package; needs pytest and nips-common's test support."""
