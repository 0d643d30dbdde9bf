"""Tests of the desk in Firefox: by keyboard alone, with a session that ends, and from a review to the proof."""

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright

from tests.features.desk.browser import test_home, test_keyboard, test_login, test_requests
from tests.features.desk.browser.browsing import firefox

pytestmark = pytest.mark.soak

test_approving_by_keyboard = test_keyboard.test_approving_by_keyboard
test_entering_a_request_by_keyboard = test_keyboard.test_entering_a_request_by_keyboard
test_filtering_by_keyboard = test_keyboard.test_filtering_by_keyboard
test_a_view_is_chosen_by_keyboard = test_keyboard.test_a_view_is_chosen_by_keyboard
test_logging_out_by_keyboard = test_keyboard.test_logging_out_by_keyboard
test_a_link_keeps_its_filter_through_a_login = test_login.test_a_link_keeps_its_filter_through_a_login
test_text_is_kept_if_the_session_ends_while_writing = test_login.test_text_is_kept_if_the_session_ends_while_writing
test_a_request_is_followed_from_review_to_proof = test_requests.test_a_request_is_followed_from_review_to_proof
test_the_calendar_counts_due_requests = test_home.test_the_calendar_counts_due_requests


@pytest.fixture(scope="module")
def browser(playwright: Playwright, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with contextlib.closing(firefox(playwright, tmp_path_factory.mktemp("firefox"))) as started:
        yield started
