"""An answer as an object."""

from pydantic import BaseModel


class Product(BaseModel):
    product: int
