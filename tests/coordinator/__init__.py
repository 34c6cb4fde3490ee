"""The copy of the coordinator: each event, each exchange, the answers, and a simple model beside it."""
