"""The package in a Python without other packages: `python3 -S bare.py MODEL`. Other tests need pytest and pyarrow."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import onbeat  # noqa: E402
import onbeat.plot  # noqa: E402

TRACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../demos/recorded/parking")


def refused(call, *words):
    """The message of a MissingPackage, which is an ImportError too."""
    try:
        call()
    except ImportError as error:
        assert isinstance(error, onbeat.MissingPackage), error
        assert all(word in str(error) for word in words) and "\n" not in str(error), error
    else:
        raise AssertionError("nothing was refused")


def main():
    """Fails if something else than tables and plots needs a package."""
    model = onbeat.open_model(sys.argv[1])
    assert len([callback.exec_ns.quantile(0.99) for callback in model.callbacks]) > 5
    assert onbeat.check(model, {"chains": [{"chain": "664e", "latency": {"p50": "70ms"}}]}).require().passed == 1
    assert onbeat.why(TRACE, chain="664e", worst=1).executions[0].stretches
    assert not onbeat.diff(model, model).changed
    trace = onbeat.open_trace(TRACE)
    assert trace.coverage == ()
    refused(lambda: trace.executions, "tables need the Python package pyarrow", "pip install 'onbeat[tables]'")
    refused(lambda: trace.read_polars("executions"), "data frames need the Python package polars", "pip install 'onbeat[polars]'")
    refused(lambda: onbeat.plot.boxes(model), "plots need the Python package matplotlib", "pip install 'onbeat[plots]'")
    print(f"Python {sys.version_info.major}.{sys.version_info.minor}: ok")


if __name__ == "__main__":
    main()
