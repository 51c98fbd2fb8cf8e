"""splinecut inside other people's training loops; each module needs the extra it is named after."""
