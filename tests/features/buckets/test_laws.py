"""Object laws for buckets: the tests of stores, seals and rows in folders are repeated in a bucket."""

from tests.app.rows.test_row_store import *  # noqa: F403
from tests.app.rows.test_row_store_damage import *  # noqa: F403
from tests.app.rows.test_row_store_edits import *  # noqa: F403
from tests.app.vault.test_sealing import *  # noqa: F403
from tests.app.vault.test_store import *  # noqa: F403

# Only a folder can contain partly written files.
del test_a_partial_manifest_is_swept  # noqa: F821
