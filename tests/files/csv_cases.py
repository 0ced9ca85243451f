"""Writes tests/files/lines/csv.txt, which tests/dataset/csv_spec.lua reads: random tables, and what Python's csv makes of them.

    python3 tests/files/csv_cases.py > tests/files/lines/csv.txt

A line is a delimiter, a text, and its rows, all in hexadecimal: a row's cells end in ",", and it in ";"; empty rows,
which csv.DictReader passes by, are left out.
"""
import csv
import io
import random

random.seed(20261122)
PIECES = ['"', '"', '""', '\n', '\r\n', '\r', 'a', 'b', ' ', '1', 'é', '\0', '.']


def cell(delimiter):
    text = ''.join(random.choice(PIECES + [delimiter]) for _ in range(random.randint(0, 4)))
    way = random.random()
    if way < 0.6:
        return '"' + text.replace('"', '""') + '"' + random.choice(['', '', '', 'y', 'y"', ' '])
    return text.replace('\n', '').replace('\r', '').replace(delimiter, '').lstrip('"')


def table(delimiter):
    if random.random() < 0.3:
        return ''.join(random.choice(PIECES + [delimiter] * 4) for _ in range(random.randint(1, 20)))
    columns = random.randint(1, 4)
    rows = [delimiter.join(cell(delimiter) for _ in range(columns + (random.random() < 0.05)))
            for _ in range(random.randint(1, 5))]
    return random.choice(['\n', '\r\n', '\r']).join(rows) + random.choice(['', '\n', '\r\n', '\r'])


for _ in range(400):
    delimiter = random.choice([',', ';', '\t', '|', ' '])
    text = table(delimiter)
    rows = [row for row in csv.reader(io.StringIO(text, newline=''), delimiter=delimiter) if row]
    shown = ''.join(''.join(c.encode().hex() + ',' for c in row) + ';' for row in rows)
    print(delimiter.encode().hex(), text.encode().hex(), shown)
