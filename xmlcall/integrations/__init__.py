"""xmlcall inside other engines: each module needs that engine, and nothing else imports it."""
