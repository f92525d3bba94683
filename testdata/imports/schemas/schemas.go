package schemas

import (
	_ "embed"
	_ "quartermaster/domain" // refused
)
