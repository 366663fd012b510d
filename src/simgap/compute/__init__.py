"""The machine room: workers, Ray, caches, locks, child processes and signals."""
