"""The parts of ``tests/benchmarks/feed.py``: files, consumers, contenders, figures."""
