"""The surface of the admin port's JSON: the OpenAPI document, as a client fetches it."""

import trio

from tests.proxy.admin.served_app import admin, ask
from tests.surfaces.texts import as_json, without_prose


def admin_api() -> str:
    """Returns the document without prose: paths, parameters, statuses, schemas and their values."""

    async def fetched() -> object:
        return (await ask(admin(), "/api/v1/openapi.json")).content

    document = without_prose(trio.run(fetched))
    del document["info"]  # The version of the distribution.
    return as_json(document)
