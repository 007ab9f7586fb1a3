"""The weather agent as a service: its settings come from outside (docs/how-to/deploy.md)."""

from examples.weather import weather
from tailrace import Tailrace

app = Tailrace([weather])
