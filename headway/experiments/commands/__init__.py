"""The subcommands `headway run` and `headway status`; each module has `add_arguments` and `execute`."""
