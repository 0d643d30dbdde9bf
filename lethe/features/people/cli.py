"""Commands about people who log in to the dashboard."""

from lethe.cli.derived import OptionShape, add_group, derive
from lethe.features.people.contract import UserOut

add_group("users", "user", "People who log in to the dashboard.")


def _line_of(user: UserOut) -> str:
    login = f"seen {user.last_login_at:%F}" if user.last_login_at else "never seen"
    state = "disabled" if user.disabled_at else login
    return f"{user.id}  {user.role:<13}  {state:<15}  {user.email}  {user.name}"


derive("users.list", line=_line_of)
derive("users.create", OptionShape(positional=("name", "email")))
