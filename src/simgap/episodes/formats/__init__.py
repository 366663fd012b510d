"""How episodes lie on disk, ours and other people's; read only."""
