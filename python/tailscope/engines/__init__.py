"""The engines that can run the analysis, a module each; `tailscope.engine.connect` chooses."""
