"""``python -m proxy`` is ``draftlane``, for places where nothing is installed, such as the image."""

from proxy.cli import main

main()
