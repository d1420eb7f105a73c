// Style sheets are Vite's matter.
declare module '*.css';
