"""Programs for the people who maintain the project: pages, training and measuring the zoo, comparing numbers.

Run them from the root of the repository, for example `python -m tools.docs`. Nothing in `antiadv` imports this package.
Where `antiadv` is not installed, set `PYTHONPATH=src`.
"""
