"""The append-only, hash-chained ledger of evidence, and the grades of claims that follow from it.

One SQLite file. Rows are added and never changed: triggers refuse UPDATE, DELETE and rows out of order, and
every row carries the hash of the row before. The whole file is held against that before anything is read from
it or added to it; a mistake is corrected by a new row. What a chain alone cannot show is that its end was
cut, or that all of it was written again: for that a *head* (number and hash of the newest row) is kept
outside, see :mod:`simgap.ledger.heads`.
"""

from simgap.ledger.book import Ledger
from simgap.ledger.claims import Claim, Grade, grade
from simgap.ledger.real import attest
from simgap.ledger.rows import GENESIS, Row, RowKind

__all__ = ["GENESIS", "Claim", "Grade", "Ledger", "Row", "RowKind", "attest", "grade"]
