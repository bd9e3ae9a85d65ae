mod refused;
mod round_trip;
