"""`client.lineage`: where the rows of a person went."""

from lethe.contract import lineage
from lethe.methods import H, Resource, call


class Lineage(Resource[H]):
    of_request = call(lineage.OF_REQUEST)
    of_person = call(lineage.OF_PERSON)
