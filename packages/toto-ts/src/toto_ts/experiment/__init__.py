"""The small real experiment: hourly flights of 2013 from New York's three airports."""
