"""Commands about cases: whose each one is."""

from tests.command_line import Lethe


def test_by_the_command_line(live: Lethe) -> None:
    """A case is assigned to a person, and to nobody."""
    request = live("request", "submit", "p1", "--no-wait").json["id"]
    person = live("user", "create", "Maria", "m@example.com", "--role", "officer").json["id"]
    assert person in live("request", "assignees").out
    assert live("request", "assign", request, person).json["assignee_name"] == "Maria"
    assert live("request", "list", "--assignee", person).out.split()[0] == request
    assert live("request", "assign", request, "nobody").json["assignee"] is None
