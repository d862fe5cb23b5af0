"""Code that runs outside the containers: the configuration, the plan of a run, the machine at hand, and its images."""
