"""Compare every number of the README, the docs and the report before and after a change of the code.

    python -m tools.compare_numbers --collect OUT [--root CHECKOUT]    collect the pages and the report of a checkout
    python -m tools.compare_numbers BEFORE AFTER                       list the numbers that differ

Collecting copies README.md and docs/, and writes the report of the stored results with the checkout's own source.
`--root` names another checkout, for example an older revision that does not have this tool:

    git worktree add /tmp/old REVISION
    python -m tools.compare_numbers --collect /tmp/before --root /tmp/old
    python -m tools.compare_numbers --collect /tmp/after
    python -m tools.compare_numbers /tmp/before /tmp/after

Tables are compared cell by cell. Pages, tables, rows and columns are matched by name, and those without a match by the
values they share, so a renamed page, heading or column is not a difference. Prose is compared by how often each number
occurs on a page, so its words may change. JSON is compared by field, without the order of lists. A number is a token of
digits, with or without a sign, a decimal point, an exponent or separators of thousands; numbers in words are not seen.

The exit status is 1 if a number changed, was added or was removed. A row that is found on another page has moved.
"""
