"""Commands about registered agents and trusted issuers."""

from lethe.cli.derived import add_group

add_group("identity_issuers", "identity-issuer", "Trusted issuers of identity statements.")
add_group("agents", "agent", "Registered agents of the Data Rights Protocol.")
