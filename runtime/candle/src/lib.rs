//! Networks of candle, as they are, that Sardana trains.
