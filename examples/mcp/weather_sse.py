"""Weather alerts and a forecast over the older HTTP+SSE: python examples/mcp/weather_sse.py [PORT]

Then xmlcall chat --mcp http://127.0.0.1:8000/sse. The reports are made up and stand in this file, so that it runs offline.
"""

import sys

from mcp.server import MCPServer

ALERTS = {
    "CA": ["Red flag warning for the hills east of San Francisco: dry wind until Tuesday evening."],
    "TX": ["Flood watch for Houston and Galveston.", "Heat advisory for Dallas: 41 degrees."],
}
# Latitude and longitude -> what is expected there.
FORECASTS = {
    (37.8, -122.4): "San Francisco: fog in the morning, then sun, 18 degrees.",
    (40.7, -74.0): "New York: rain, 11 degrees, wind from the east.",
    (51.5, -0.1): "London: cloudy, 9 degrees.",
}

server = MCPServer("weather", instructions="Forecasts are for the nearest city that is known.")


@server.tool()
def get_alerts(state: str) -> str:
    """Get the weather alerts of a US state.

    Args:
        state: two letters, such as CA or NY
    """
    return "\n".join(ALERTS.get(state.upper(), [])) or f"There are no alerts for {state}."


@server.tool()
def get_forecast(latitude: float, longitude: float) -> str:
    """Get the weather forecast for a place."""
    nearest = min(FORECASTS, key=lambda place: (place[0] - latitude) ** 2 + (place[1] - longitude) ** 2)
    return FORECASTS[nearest]


if __name__ == "__main__":
    server.run(transport="sse", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
