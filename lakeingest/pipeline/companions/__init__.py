"""Tables beside copies, which are written from their changelogs after each publish: `core.companions.companion`."""
