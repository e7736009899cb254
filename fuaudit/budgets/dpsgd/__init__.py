"""DP-SGD: accounts of noisy steps over sampled rows, each under the law of sampling for which it holds."""
