"""Tells tests what Home Assistant knows: each connection to a Unix socket gets all of it as JSON."""

import asyncio
import json
import time
from typing import Any

from homeassistant.components import image, mqtt
from homeassistant.core import callback
from homeassistant.helpers import device_registry, entity_registry


async def async_setup(hass: Any, config: dict[str, Any]) -> bool:
    path, changes, told = config["lookout_probe"]["socket"], list[Any](), list[Any]()
    connected_at: float | None = None

    def connected(is_connected: bool) -> None:
        nonlocal connected_at
        connected_at = time.monotonic() if is_connected else None

    def note(event: Any) -> None:
        new, old = event.data["new_state"], event.data["old_state"]
        if new is not None and new.entity_id.startswith("event."):
            changes.append([new.entity_id, old and old.state, new.state, new.attributes.get("id")])

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = {**await known(hass), "changes": changes, "told": told, "connected_at": connected_at}
        writer.write(json.dumps(found, default=str).encode())
        await writer.drain()
        writer.close()

    mqtt.async_subscribe_connection_status(hass, callback(connected))
    hass.bus.async_listen("state_changed", callback(note))
    hass.bus.async_listen("lookout_told", callback(lambda event: told.append(dict(event.data))))
    await asyncio.start_unix_server(answer, path)
    return True


async def known(hass: Any) -> dict[str, Any]:
    """States, devices, entities, and the bytes of pictures."""
    devices, entities = device_registry.async_get(hass), entity_registry.async_get(hass)
    pictures = {}
    component = hass.data.get(image.DATA_COMPONENT)
    for entity in component.entities if component else ():
        pictures[entity.entity_id] = len(await entity.async_image() or b"")
    return {
        "is_running": hass.is_running,
        "states": {state.entity_id: [state.state, dict(state.attributes)] for state in hass.states.async_all()},
        "devices": [
            {"id": row.id, "name": row.name, "ids": [pair[1] for pair in row.identifiers], "via": row.via_device_id}
            for row in devices.devices.values()
        ],
        "entities": {row.entity_id: row.unique_id for row in entities.entities.values()},
        "pictures": pictures,
    }
