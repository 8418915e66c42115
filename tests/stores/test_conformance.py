from buquet.testing.conformance import StoreConformance


class TestEveryStore(StoreConformance):
    """The `store` fixture is each of them in turn."""
