"""What every other package builds on: oracle, ball, threat, ledger, random numbers, specs, checks, errors."""
