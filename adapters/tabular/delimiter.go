package tabular

import (
	"fmt"
	"strings"
)

// OtherDelimiter returns a message if the columns of a header seem to be separated by something
// else than commas: by a mark that is more frequent. It returns "" if the delimiter is the comma.
func OtherDelimiter(header []string) string {
	text := strings.Join(header, ",")
	found, most := "", strings.Count(text, ",")
	for _, d := range []struct{ mark, name string }{{";", `";"`}, {"\t", "a tab"}, {"|", `"|"`}} {
		if n := strings.Count(text, d.mark); n > most {
			found, most = d.name, n
		}
	}
	if found == "" {
		return ""
	}
	return fmt.Sprintf("the delimiter looks like %s: save the file with commas, and with points in numbers", found)
}
