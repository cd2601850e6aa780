"""The old name of `antiadv.paper.theory`, for all 0.2 releases."""

from antiadv.core.deprecated import moved

moved(__name__, "antiadv.paper.theory")
