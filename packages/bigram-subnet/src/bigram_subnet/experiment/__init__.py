"""The parts of the small real experiment."""
