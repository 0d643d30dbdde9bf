"""The tree stays within its ceilings."""

import pytest

from tests.architecture.ceilings import ceilings, feature_of


@pytest.mark.soak
def test_every_ceiling_is_kept() -> None:
    """The core, the product, features, files, signatures and imports are within the ceilings that `./dev lint`
    also enforces."""
    assert [str(ceiling) for ceiling in ceilings() if not ceiling.is_kept] == []


def test_files_belong_to_features_by_their_folder() -> None:
    """A file below `features/<name>/` belongs to that feature; every other file belongs to the core."""
    assert feature_of("app/features/desk/pages/home.py") == "desk"
    assert feature_of("app/features/__init__.py") is None
    assert feature_of("lethe/proof/accountant.py") is None
