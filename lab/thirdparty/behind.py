"""What servers have in common that ask a backend."""

from __future__ import annotations

from typing import ClassVar

from proof.ports import free_port

from thirdparty import built
from thirdparty.case import Case

#: What a server asks a backend that answers after 2 or 20 ms.
TWO_KINDS = {"/fast": 200.0, "/slow": 100.0}


class Behind(Case):
    """A server that asks a backend, which is not recorded, for each answer."""

    rates: ClassVar = TWO_KINDS
    connections: ClassVar = 16

    def start_backend(self) -> int:
        """Starts it, and returns its port."""
        self.backend_port = free_port()
        words = (built.go(), "backend", self.backend_port)
        self.backend = self.run(*words, port=self.backend_port)
        return self.backend_port
