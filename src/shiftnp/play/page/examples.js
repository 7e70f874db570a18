// Example data of the page. Each entry maps random numbers to points and a sentence about them.

/** CO2 at Mauna Loa, every fourth week from 1990 to 1993: years since 1992-01-01, parts per million (data/co2.csv). */
const CO2 = [
  [-1.985, 353.4], [-1.908, 354.1], [-1.832, 355.7], [-1.755, 355.9], [-1.678, 356.1], [-1.602, 357.1],
  [-1.525, 355.5], [-1.448, 354.5], [-1.372, 352.9], [-1.295, 351.3], [-1.218, 351.0], [-1.142, 352.6],
  [-1.065, 354.0], [-0.988, 354.2], [-0.912, 355.2], [-0.835, 356.4], [-0.758, 357.9], [-0.682, 359.2],
  [-0.605, 359.0], [-0.528, 358.1], [-0.452, 355.2], [-0.375, 353.7], [-0.298, 352.1], [-0.222, 352.1],
  [-0.145, 353.7], [-0.068, 354.5], [0.008, 355.6], [0.085, 356.0], [0.162, 356.5], [0.238, 358.4], [0.315, 359.2],
  [0.392, 359.6], [0.468, 358.7], [0.545, 356.3], [0.621, 355.3], [0.698, 353.6], [0.775, 353.3], [0.851, 353.9],
  [0.928, 354.8], [1.005, 356.2], [1.081, 357.0], [1.158, 357.6], [1.235, 358.8], [1.311, 360.0], [1.388, 360.6],
  [1.465, 359.3], [1.541, 358.1], [1.618, 355.9], [1.695, 353.2], [1.771, 353.8], [1.848, 354.7], [1.925, 356.2],
];
const PPM = [355, 2.2];

/** Points of a function at n random places between -2 and 2, in ascending order. */
function scatter(n, random, f) {
  const x = Array.from({ length: n }, () => 4 * random.uniform() - 2).sort((a, b) => a - b);
  return x.map((v) => [v, f(v)]);
}

export const EXAMPLES = {
  co2: () => ({
    points: CO2.map(([x, ppm]) => [x, (ppm - PPM[0]) / PPM[1]]),
    text: `CO₂ at Mauna Loa, 1990 to 1993: x in years since 1992, y = (ppm - ${PPM[0]}) / ${PPM[1]}.`,
  }),
  sine: (random) => ({ points: scatter(9, random, (x) => 1.5 * Math.sin(2 * x)), text: "A sine at nine places." }),
  step: (random) => ({ points: scatter(20, random, (x) => (x < 0 ? -1 : 1)), text: "A step at 20 places." }),
  periodic: (random) => ({
    points: scatter(30, random, (x) => Math.sin(6 * x) + 0.5 * Math.sin(12 * x)),
    text: "A period of about 1, with a second harmonic, at 30 places.",
  }),
};

function plane(n, random, f) {
  return Array.from({ length: n }, () => {
    const [a, b] = [3.4 * random.uniform() - 1.7, 3.4 * random.uniform() - 1.7];
    return [a, b, f(a, b)];
  });
}

export const MAPS = {
  bumps: (random) => ({
    points: plane(30, random, (a, b) => 2 * Math.exp(-((a - 0.6) ** 2) - (b - 0.5) ** 2) - Math.exp(-2 * (a + 1) ** 2 - (b + 0.8) ** 2)),
    text: "Two bumps at 30 places.",
  }),
  wave: (random) => ({ points: plane(40, random, (a, b) => Math.sin(2.5 * (a + b))), text: "A wave at 40 places." }),
  stations: (random) => ({
    points: plane(12, random, (a, b) => 0.8 * a - 0.5 * b).concat(plane(12, random, (a, b) => 0.8 * a - 0.5 * b + 0.2 * random.normal())),
    text: "24 stations on a slope, half of them with noise.",
  }),
};
