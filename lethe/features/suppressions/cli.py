"""Commands about suppressions."""

from lethe.cli.derived import OptionShape, add_group, derive

add_group("suppressions", "suppression", "People who have asked to be forgotten, and whose rows are refused.")
derive("suppressions.lift", OptionShape(positional=("subject_id",)))
