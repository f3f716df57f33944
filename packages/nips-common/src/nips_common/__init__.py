"""What the method packages share; import the modules: ``from nips_common import artifacts, cli``."""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("nips-common")
