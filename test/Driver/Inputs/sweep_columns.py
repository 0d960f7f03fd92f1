"""Prints columns of a CSV file, and checks that every row has all of them.

    sweep_columns.py F.csv COLUMN ...
"""
import csv
import sys

with open(sys.argv[1], newline="") as file:
    rows = list(csv.DictReader(file, strict=True))
assert all(None not in row and None not in row.values() for row in rows)
for row in rows:
    print(" ".join(row[name] or "-" for name in sys.argv[2:]))
