"""Tests of the desk in Firefox: by keyboard alone, with a session that ends, and from a review to the proof."""

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright

from tests.features.desk.browser import test_home, test_keyboard, test_login, test_requests
from tests.features.desk.browser.browsing import firefox

pytestmark = pytest.mark.soak

test_approving = test_keyboard.test_approving_by_keyboard
test_entering = test_keyboard.test_entering_a_request_by_keyboard
test_filtering = test_keyboard.test_filtering_by_keyboard
test_a_view = test_keyboard.test_a_view_by_keyboard
test_leaving = test_keyboard.test_leaving_by_keyboard
test_a_link = test_login.test_a_link_keeps_what_it_asks_for
test_a_session_that_ends = test_login.test_a_session_that_ends_while_somebody_writes
test_to_the_proof = test_requests.test_from_the_review_to_the_proof
test_what_is_owed = test_home.test_the_calendar_of_deadlines


@pytest.fixture(scope="module")
def browser(playwright: Playwright, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with contextlib.closing(firefox(playwright, tmp_path_factory.mktemp("firefox"))) as started:
        yield started
