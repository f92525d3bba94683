package parquet_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	pq "github.com/parquet-go/parquet-go"
	"github.com/shopspring/decimal"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/focus/parquet"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// month returns the same n machine-hours as CSV and as Parquet: costs and quantities as decimals,
// times as timestamps.
func month(b *testing.B, n int) (text, file []byte) {
	b.Helper()
	costs := []string{"BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "ListUnitPrice", "PricingQuantity"}
	times := []string{"BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd"}
	texts := []string{
		"BillingAccountId", "BillingAccountName", "BillingCurrency", "ChargeCategory", "ChargeDescription", "ChargeFrequency", "InvoiceId", "InvoiceIssuerName",
		"PricingCategory", "PricingUnit", "ProviderName", "RegionId", "RegionName", "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName",
		"ServiceSubcategory", "SkuId", "SkuPriceId", "SubAccountId", "SubAccountName", "Tags",
	}
	group := pq.Group{}
	for _, c := range costs {
		group[c] = pq.Compressed(pq.Decimal(18, 38, pq.FixedLenByteArrayType(16)), &pq.Snappy)
	}
	for _, c := range times {
		group[c] = pq.Compressed(pq.Timestamp(pq.Microsecond), &pq.Snappy)
	}
	for _, c := range texts {
		group[c] = pq.Compressed(pq.Encoded(pq.String(), &pq.RLEDictionary), &pq.Snappy)
	}
	schema := pq.NewSchema("bill", group)
	var t, f bytes.Buffer
	cw, pw := csv.NewWriter(&t), pq.NewWriter(&f, schema)
	var header []string
	for _, field := range schema.Fields() {
		header = append(header, field.Name())
	}
	if err := cw.Write(header); err != nil {
		b.Fatal(err)
	}
	may := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		hour := may.Add(time.Duration(i/2000) * time.Hour)
		record := make([]string, len(header))
		row := make(pq.Row, len(header))
		for c, name := range header {
			switch name {
			case "BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd":
				at := map[string]time.Time{"BillingPeriodStart": may, "BillingPeriodEnd": may.AddDate(0, 1, 0), "ChargePeriodStart": hour, "ChargePeriodEnd": hour.Add(time.Hour)}[name]
				record[c], row[c] = at.Format(time.RFC3339), pq.Int64Value(at.UnixMicro())
			case "BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "ListUnitPrice", "PricingQuantity":
				d := decimal.New(98_320_000_000_00+int64(i), -11)
				if name == "PricingQuantity" {
					d = decimal.New(1, 0)
				}
				var bytes [16]byte
				d.Shift(18).BigInt().FillBytes(bytes[:])
				record[c], row[c] = d.String(), pq.FixedLenByteArrayValue(bytes[:])
			default:
				s := strings.ToLower(name) + "-1"
				switch name {
				case "ResourceId":
					s = fmt.Sprintf("i-%06d", i%2000)
				case "BillingCurrency":
					s = "USD"
				case "ChargeCategory":
					s = "Usage"
				case "ChargeFrequency":
					s = "Usage-Based"
				case "PricingCategory":
					s = "Standard"
				case "PricingUnit":
					s = "Hours"
				case "Tags":
					s = `{"team":"search","env":"prod"}`
				}
				record[c], row[c] = s, pq.ByteArrayValue([]byte(s))
			}
			row[c] = row[c].Level(0, 0, c)
		}
		if err := cw.Write(record); err != nil {
			b.Fatal(err)
		}
		if _, err := pw.WriteRows([]pq.Row{row}); err != nil {
			b.Fatal(err)
		}
	}
	cw.Flush()
	if err := errors.Join(cw.Error(), pw.Close()); err != nil {
		b.Fatal(err)
	}
	return t.Bytes(), f.Bytes()
}

// BenchmarkRead compares the CPU time of reading a bill's lines from Parquet, and from CSV, with that
// of encoding/csv reading the same rows and doing nothing with them.
func BenchmarkRead(b *testing.B) {
	text, file := month(b, 20_000)
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	run := func(data []byte, open func(context.Context, io.Reader, tabular.Limits) (tabular.Table, error)) {
		s, err := focus.Run(context.Background(), bytes.NewReader(data), bytes.NewReader(data), "f", focus.Options{Open: open}, func(*domain.Envelope) error { return nil }, nil)
		if err != nil || s.Events != 20_000 {
			b.Fatal(s, err)
		}
	}
	var columnar, table, rows, plain time.Duration
	for b.Loop() {
		t0 := cpu()
		run(file, func(ctx context.Context, f io.Reader, l tabular.Limits) (tabular.Table, error) {
			return parquet.Open(ctx, f, l, focus.ErrColumns)
		})
		t1 := cpu()
		tab, err := parquet.Open(context.Background(), bytes.NewReader(file), tabular.Limits{}, focus.ErrColumns)
		for err == nil {
			_, err = tab.Next()
		}
		t2 := cpu()
		run(text, nil)
		t3 := cpu()
		r := csv.NewReader(bytes.NewReader(text))
		r.ReuseRecord = true
		for err = nil; err == nil; {
			_, err = r.Read()
		}
		columnar, table, rows, plain = columnar+t1-t0, table+t2-t1, rows+t3-t2, plain+cpu()-t3
	}
	b.ReportMetric(columnar.Seconds()/plain.Seconds(), "parquet×csv")
	b.ReportMetric(table.Seconds()/plain.Seconds(), "table×csv")
	b.ReportMetric(rows.Seconds()/plain.Seconds(), "csv×csv")
}
