"""The small real experiment: knowledge graphs of pykeen, and glosses and pointers of WordNet."""
