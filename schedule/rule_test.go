package schedule

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRulesThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct{ rule, says string }{
		"nothing":                                     {"", "NAME=VALUE"},
		"finer than a day":                            {"FREQ=HOURLY", "FREQ=HOURLY"},
		"no frequency":                                {"BYDAY=SA", "FREQ is missing"},
		"a part twice":                                {"FREQ=DAILY;FREQ=DAILY", "twice"},
		"an interval of nothing":                      {"FREQ=DAILY;INTERVAL=0", "INTERVAL"},
		"an interval that is no number":               {"FREQ=DAILY;INTERVAL=+2", "INTERVAL"},
		"a part that is not known":                    {"FREQ=DAILY;BYHOUR=3", "BYHOUR"},
		"a day that is not known":                     {"FREQ=WEEKLY;BYDAY=SX", "BYDAY"},
		"a first Saturday of the week":                {"FREQ=WEEKLY;BYDAY=1SA", "MONTHLY or YEARLY"},
		"a zeroth Saturday":                           {"FREQ=MONTHLY;BYDAY=0SA", "BYDAY"},
		"a day of the month in a week":                {"FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY"},
		"a 32nd":                                      {"FREQ=MONTHLY;BYMONTHDAY=32", "BYMONTHDAY"},
		"a 13th month":                                {"FREQ=YEARLY;BYMONTH=13", "BYMONTH"},
		"a position in nothing":                       {"FREQ=MONTHLY;BYSETPOS=1", "BYSETPOS"},
		"two ends":                                    {"FREQ=DAILY;COUNT=2;UNTIL=20260101", "exclude each other"},
		"an end that is neither a day nor an instant": {"FREQ=DAILY;UNTIL=2026", "UNTIL"},
		"a week that starts on no day":                {"FREQ=WEEKLY;WKST=1", "WKST"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseRule(c.rule)
			require.ErrorContains(t, err, c.says)
		})
	}
}
