"""Test support shared by the packages; needs the ``test`` dependencies of the package that uses it."""
