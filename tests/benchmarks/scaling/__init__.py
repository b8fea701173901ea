"""The parts of ``tests/benchmarks/scale.py``: file, page cache, memory, one pass, figures."""
