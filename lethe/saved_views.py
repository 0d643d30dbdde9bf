"""`client.saved_views`: views of the list of requests that the caller has kept."""

from lethe.contract import saved_views
from lethe.methods import H, Keyed, Resource, call, pages


class _NewSavedView(saved_views.SavedViewIn, Keyed):
    pass


class SavedViews(Resource[H]):
    create = call(saved_views.CREATE, _NewSavedView)
    list = pages(saved_views.LIST)
    delete = call(saved_views.DELETE)
