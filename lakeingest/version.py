"""The version of lakeingest, in a module that imports nothing."""

VERSION = "0.2.0.dev0"
