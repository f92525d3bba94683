package demo

// awsMachine is a machine type of AWS and its prices by region. spot is the hourly price without a
// region. oneYearOlder says that the one-year price has another source than the on-demand price.
type awsMachine struct {
	machineType
	oneYearOlder bool
	spot         string
	prices       []awsPrices
}

// The one-year price of p3.16xlarge is the monthly 12,196.84 of the source over 730 hours, quoted
// together with the on-demand price of us-east-1. No three-year price of p3, and no one-year price
// of p5 and p6, was found at a date near that of the on-demand price.
var awsMachines = []awsMachine{
	{machineType{"p3.2xlarge", "V100 16GB", 1, 16, "8", "61"}, false, "0.92", []awsPrices{
		{"us-east-1", "3.06", "", ""},
		{"us-west-2", "3.06", "", ""},
		{"eu-central-1", "3.823", "", ""},
		{"eu-west-1", "3.305", "", ""},
	}},
	{machineType{"p3.16xlarge", "V100 16GB", 8, 128, "64", "488"}, true, "7.34", []awsPrices{
		{"us-east-1", "24.48", "16.708", ""},
		{"us-west-2", "24.48", "", ""},
		{"eu-central-1", "30.584", "", ""},
		{"eu-west-1", "26.44", "", ""},
	}},
	{machineType{"p3dn.24xlarge", "V100 32GB", 8, 256, "96", "768"}, false, "", []awsPrices{
		{"us-east-1", "31.212", "19.215", "238250.01"},
		{"us-west-2", "31.212", "19.215", ""},
		{"eu-west-1", "33.711", "20.817", ""},
	}},
	{machineType{"p4d.24xlarge", "A100 40GB", 8, 320, "96", "1152"}, false, "9.83", []awsPrices{
		{"us-east-1", "21.957642", "13.921094", "214419.99"},
		{"us-west-2", "21.95764", "13.921092", ""},
		{"eu-central-1", "27.43298", "17.392445", ""},
		{"eu-west-1", "23.71569", "15.08188", ""},
		{"eu-north-1", "23.71569", "", ""},
	}},
	{machineType{"p4de.24xlarge", "A100 80GB", 8, 640, "96", "1152"}, false, "", []awsPrices{
		{"us-east-1", "27.44705", "17.401365", "268025.01"},
		{"us-west-2", "27.44705", "17.401365", ""},
		{"eu-central-1", "34.29122", "21.740553", ""},
	}},
	{machineType{"p5.4xlarge", "H100 SXM 80GB", 1, 80, "16", "256"}, false, "", []awsPrices{
		{"us-east-1", "6.88", "", "67983"},
		{"us-west-2", "6.88", "", ""},
	}},
	{machineType{"p5.48xlarge", "H100 SXM 80GB", 8, 640, "192", "2048"}, false, "", []awsPrices{
		{"us-east-1", "55.04", "", "543866.01"},
		{"us-west-2", "55.04", "", ""},
		{"eu-north-1", "58.8928", "", ""},
	}},
	{machineType{"p5en.48xlarge", "H200 141GB", 8, 1128, "192", "2048"}, false, "", []awsPrices{
		{"us-east-1", "63.296", "", "625445.61"},
		{"us-west-2", "63.296", "", ""},
		{"eu-north-1", "67.72672", "", ""},
	}},
	{machineType{"p6-b200.48xlarge", "B200", 8, 1432, "192", "2048"}, false, "", []awsPrices{
		{"us-east-1", "113.9328", "", "1125801.81"},
		{"us-west-2", "113.9328", "", ""},
	}},
	{machineType{"g4dn.xlarge", "T4", 1, 16, "4", "16"}, false, "0.16", []awsPrices{
		{"us-east-1", "0.526", "0.331", "5198.01"},
		{"us-west-2", "0.526", "0.331", ""},
		{"eu-central-1", "0.658", "0.449", ""},
	}},
	{machineType{"g4dn.metal", "T4", 8, 128, "96", "384"}, false, "2.35", []awsPrices{
		{"us-east-1", "7.824", "4.929", "77310.99"},
		{"us-west-2", "7.824", "4.929", ""},
		{"eu-central-1", "9.78", "6.675", ""},
	}},
	{machineType{"g5.xlarge", "A10G", 1, 24, "4", "16"}, false, "0.3", []awsPrices{
		{"us-east-1", "1.006", "0.63378", "9941.01"},
		{"us-west-2", "1.006", "0.63378", ""},
		{"eu-central-1", "1.258", "0.79254", ""},
	}},
	{machineType{"g5.48xlarge", "A10G", 8, 192, "192", "768"}, false, "4.89", []awsPrices{
		{"us-east-1", "16.288", "10.26144", "160946.01"},
		{"us-west-2", "16.288", "10.26144", ""},
		{"eu-central-1", "20.3681", "12.8319", ""},
	}},
	{machineType{"g6.xlarge", "L4", 1, 24, "4", "16"}, false, "", []awsPrices{
		{"us-east-1", "0.8048", "0.52392", "8448.99"},
		{"us-west-2", "0.8048", "0.52392", ""},
		{"eu-central-1", "1.0064", "0.65517", ""},
	}},
	{machineType{"g6.48xlarge", "L4", 8, 192, "192", "768"}, false, "", []awsPrices{
		{"us-east-1", "13.3504", "8.69111", "140163.99"},
		{"us-west-2", "13.3504", "8.69111", ""},
		{"eu-central-1", "16.69464", "10.86821", ""},
	}},
	{machineType{"g6e.xlarge", "L40S", 1, 48, "4", "32"}, false, "", []awsPrices{
		{"us-east-1", "1.861", "1.17243", "18389.01"},
		{"us-west-2", "1.861", "1.17243", ""},
		{"eu-central-1", "2.327", "1.46601", ""},
	}},
	{machineType{"g6e.48xlarge", "L40S", 8, 384, "192", "1536"}, false, "", []awsPrices{
		{"us-east-1", "30.13118", "18.98264", "297735"},
		{"us-west-2", "30.13118", "18.98264", ""},
		{"eu-central-1", "37.67612", "23.73596", ""},
	}},
}
